"""Short texts in many languages and scripts, with what tokenizers are known to lose."""

# "The cat sleeps in the old house." and "Open the file, please!", by tags as names of files have them.
SENTENCES = {
    "en": ("The cat sleeps in the old house.", "Open the file, please!"),
    # Latin
    "de": ("Die Katze schläft im alten Haus.", "Öffnen Sie „die Datei“, bitte – geht’s?"),
    "fr": ("L’œil du chat s’ouvre : « il dort » dans la vieille maison.", "Qu’est-ce que c’est ? Ouvrez l'été !"),
    "cat": ("El gat dorm a la casa vella; l’home d’aquí col·labora.", "Obriu el fitxer, si us plau: «n'hi ha»!"),
    "pt-BR": ("O gato dorme na casa velha.", "Abra o arquivo, por favor — não é “difícil”!"),
    "tr": ("Kedi eski evde uyuyor. İstanbul’da ılık.", "Lütfen dosyayı açın!"),
    "gsw": ("D Chatz schlaaft im alte Huus.", "Mach s File uuf, bitte!"),
    # Cyrillic and Greek
    "ru": ("Кошка спит в старом доме.", "Откройте «файл», пожалуйста!"),
    "srp_Cyrl": ("Мачка спава у старој кући.", "Отворите „датотеку“, молим!"),
    "el": ("Η γάτα κοιμάται στο παλιό σπίτι· ναι;", "Ανοίξτε το «αρχείο», παρακαλώ!"),
    # Arabic and Hebrew
    "ar": ("القطة تنام في البيت القديم، نعم؟", "افتح «الملف» من فضلك؛ شكرًا!"),
    "fa": ("گربه در خانهٔ قدیمی می\u200cخوابد؛ «بله»؟", "لطفاً پرونده را باز کنید!"),
    "he": ("החתול ישן בבית הישן, צה״ל וג׳ירפה.", "פתח את הקובץ, בבקשה!"),
    # scripts of India
    "hi": ("बिल्ली पुराने घर में सोती है।", "कृपया फ़ाइल खोलें!"),
    "ml": ("പൂച്ച പഴയ വീട്ടിൽ ഉറങ്ങുന്നു.", "ദയവായി ഫയൽ തുറക്കുക!"),
    "tam": ("பூனை பழைய வீட்டில் தூங்குகிறது.", "கோப்பைத் திறக்கவும்!"),
    # without spaces between words, and Korean
    "zh_CN": ("猫睡在老房子里。", "请打开“文件”，谢谢！"),
    "jpn": ("猫は古い家で\u3000眠っています。", "「ファイル」を開いてください！"),
    "ko": ("고양이가 오래된 집에서 잔다.", "파일을 열어 주세요!"),
    "th": ("แมวนอนในบ้านเก่า", "กรุณาเปิดไฟล์ ๆ ครับ!"),
    "khm": ("ឆ្មាដេកក្នុងផ្ទះចាស់។", "សូមបើកឯកសារ!"),
    "lao_Laoo": ("ແມວນອນໃນເຮືອນເກົ່າ", "ກະລຸນາເປີດໄຟລ໌!"),
    "my": ("ကြောင်သည် အိမ်ဟောင်းတွင် အိပ်သည်။", "ဖိုင်ကို ဖွင့်ပါ။"),
}
_AROUND = (
    "{}",
    "{} {n}",
    '<b class="x">{}</b>&nbsp;&amp;',
    "“{}” 'x' \"y\" – {n} %",
    "{} https://posnet.org/a_b?q={n}&c#d",
)
# In no line that subwords are learned from.
_ONLY_TEST = (
    "`x[{n}] += f(\"a\", 'b'); // {}`",
    "{} 😀👩‍🚀🇩🇪☃ ĳꙮ𓀀",
    "  {}  \u00a0 @-@ ",
    "<s> <unk> <pad> </s> {} <0x41>",
    "a\tb\u2028\ufeff\u200b{}",
    "{} __x__ {{y}} C:\\new\\t$1",
)


def lines(language, test=False):
    """Lines of a language, parallel to those of others."""
    around = _AROUND + _ONLY_TEST if test else _AROUND * 4
    found = [form.format(s, n=n) for n, form in enumerate(around * 2) for s in SENTENCES[language]]
    return [*found, f"▁▁ {found[0]}▁ @@"] if test else found  # more such lines would be taken for subwords
