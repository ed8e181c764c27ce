"""Prints how many GPUs there are and whether all of them have bf16: "2 yes"."""

import subprocess


def gpus():
    """Their number, and whether all have bf16 (compute capability 8.0)."""
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip()
    except OSError:
        found = ""
    if not found:
        return 0, False  # without the seconds that importing torch takes
    import torch

    count = torch.cuda.device_count()
    return count, count > 0 and all(torch.cuda.get_device_capability(i) >= (8, 0) for i in range(count))


if __name__ == "__main__":
    count, bf16 = gpus()
    print(count, "yes" if bf16 else "no")
