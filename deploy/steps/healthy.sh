# healthy.sh: succeeds if the server on this machine can read and write its store.
set -eu
exec python3 - "http://127.0.0.1:${PORT:-7700}/v1/ready" <<'PROGRAM'
import sys
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=2) as answer:
        sys.exit(answer.status != 200)
except OSError as error:
    sys.exit(str(error))
PROGRAM
