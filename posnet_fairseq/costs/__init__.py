"""What models cost: parameters, multiplications, and the memory of a training step."""
