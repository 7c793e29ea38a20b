#!/usr/bin/env python
"""Django's command line: `manage.py signin_link`, `orchestrator`, `verifier --device cpu`, `import_trace DIR`, ..."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    if sys.argv[1:2] in (["orchestrator"], ["verifier"]):  # each is in the database what it is, also where it is started by hand
        os.environ.setdefault("STITCHWORK_ROLE", sys.argv[1])
    from django.core.management import execute_from_command_line
    from django.db import OperationalError
    from psycopg_pool import PoolTimeout

    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        if not isinstance(error.__cause__, PoolTimeout):
            raise
        where = "DATABASE_URL" if os.environ.get("DATABASE_URL") else "the embedded Postgres of this DATA_DIR (`make run` starts it)"
        sys.exit(f"manage.py: the database does not answer; tried {where}")
