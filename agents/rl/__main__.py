import sys

from agents.rl.cli import main

sys.exit(main())
