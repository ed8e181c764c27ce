"""What models cost: parameters and multiplications, and what posnet-mixers prints."""
