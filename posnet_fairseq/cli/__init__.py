"""The commands, a file each. A command imports torch and fairseq only when its options are read and right."""
