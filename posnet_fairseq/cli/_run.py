"""What all commands do alike: show mistakes as one sentence, and stop quietly."""

import functools
import logging
import os
import sys

from posnet_fairseq.errors import visible
from posnet_fairseq.failures import explain


def command(main):
    """Decorator for a console script's function: known failures end with a sentence and exit code 2."""

    @functools.wraps(main)
    def run(arguments=None):
        logging.getLogger().setLevel(logging.WARNING)  # fairseq's modules have set it to all there is
        try:
            main(arguments)
            if sys.stdout is not None:  # as with ">&-"
                sys.stdout.flush()
        except KeyboardInterrupt:
            sys.exit(130)
        except BrokenPipeError:
            # The reader of our output has gone (as with "| head"); keep Python from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except Exception as error:
            sentence = explain(error)
            if sentence is None:
                raise
            print(f"{os.path.basename(sys.argv[0])}: error: {visible(sentence)}", file=sys.stderr)
            sys.exit(2)

    return run
