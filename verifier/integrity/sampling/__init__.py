"""Where a process spends its calls, seen from outside: no part of it runs in the process that is looked at."""
