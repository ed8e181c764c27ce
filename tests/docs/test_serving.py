"""The server of docs/serving.md answers concurrent requests as the model translates."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

import posnet_fairseq as posnet
from support import documents
from support.checkpoints import checkpoint
from support.signals import PATIENCE

(CODE,) = documents.python("docs/serving.md")


@pytest.fixture
def served(tmp_path):
    """The model, and a function of what is posted to what is answered: status and content."""
    names = {"__name__": "serve"}
    exec(compile(CODE, "serve.py", "exec"), names)
    model = posnet.load(checkpoint(tmp_path / "averaged.pt", "rposnet"), pretokenized=True)
    server = names["ThreadingHTTPServer"](("127.0.0.1", 0), names["Handler"])
    server.RequestHandlerClass.log_message = lambda *_: None
    server.batcher = names["Batcher"](model)

    def post(content):
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            with urllib.request.urlopen(url, json.dumps(content).encode(), timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    post.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield model, post
    server.shutdown()
    server.server_close()


def test_concurrent_requests_get_their_own_translations(served):
    model, post = served
    requests = [[f"w{number} w2", f"W3 {'w3 ' * number}. W4 w{number}!  W5."] for number in range(1, 13)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(post, requests))
    for lines, (status, answer) in zip(requests, answers, strict=True):
        assert status == 200
        assert answer == model.translate(lines, split_sentences=True)
        assert answer[1] != model.translate(lines[1])


def test_what_is_no_list_of_lines_is_refused(served):
    _, post = served
    for content in ("w1", [1], {"w1": "w2"}):
        assert post(content) == (400, {"error": "send a JSON list of lines"})


def test_a_request_without_a_length_is_refused(served):
    _, post = served
    connection = http.client.HTTPConnection("127.0.0.1", post.port, timeout=PATIENCE)
    connection.putrequest("POST", "/")
    connection.endheaders()
    assert connection.getresponse().status == 400


def test_a_translation_as_plain_values(served):
    model, _ = served
    (best,) = model.translate("w1 w2", nbest=1, attention=True)
    values = json.loads(json.dumps(best.to_dict()))
    assert values["text"] == best.text
    assert values["score"] == best.score
    assert values["attention"] == best.attention.tolist()
    assert [tuple(pair) for pair in values["alignment"]] == list(best.alignment)
    assert list(model.translate("w1", nbest=1)[0].to_dict()) == [
        "text",
        "score",
        "tokens",
        "source_tokens",
        "token_scores",
    ]
