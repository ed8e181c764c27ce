"""The commands, a file each."""

from posnet_fairseq.shared.garbage import expect_imports

expect_imports()
