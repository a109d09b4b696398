"""`python -m receiver.web --channel-fd N`: the store process, as the supervisor starts it."""

from receiver import process
from receiver.web.work import begin

if __name__ == "__main__":
    process.run(begin)
