#!/usr/bin/env python
"""Django's command line: `manage.py signin_link`, `orchestrator`, `verifier --device cpu`, `import_trace DIR`, ..."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
