"""Prints how many GPUs there are and whether all of them have bf16: "2 yes"."""

import subprocess

try:
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip()
except OSError:
    found = ""
if not found:
    print("0 no")  # without the seconds that importing torch takes
else:
    import torch

    count = torch.cuda.device_count()
    capable = all(torch.cuda.get_device_capability(index) >= (8, 0) for index in range(count))
    print(count, "yes" if count and capable else "no")
