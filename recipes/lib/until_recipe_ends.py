"""python recipes/lib/until_recipe_ends.py COMMAND ...: runs it; it is killed if the recipe that started it is."""

import os
import sys

from stage import end_with_recipe

if __name__ == "__main__":
    end_with_recipe()
    os.execvp(sys.argv[1], sys.argv[1:])
