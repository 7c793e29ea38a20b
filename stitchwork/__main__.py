import sys

from stitchwork.cli import main

sys.exit(main())
