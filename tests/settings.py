"""Settings for the tests: everything is in a temporary directory that disappears with the test process."""

import atexit
import os
import shutil
import tempfile

os.environ["DATA_DIR"] = tempfile.mkdtemp(prefix="stitchwork-test-")
os.environ.setdefault("STITCHWORK_LEARNING_DIR", os.environ["DATA_DIR"] + "/learning")  # a server started by a test reads what the test wrote
_owner = os.getpid()
atexit.register(lambda: os.getpid() == _owner and shutil.rmtree(os.environ["DATA_DIR"], ignore_errors=True))

from webapp.settings import *  # noqa: E402, F403
from webapp.settings import STORAGES  # noqa: E402

STORAGES = STORAGES | {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
