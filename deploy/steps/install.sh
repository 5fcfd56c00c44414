# install.sh WHEELS FOLDER [REQUIREMENTS]: a virtual environment with Holdfast, from a wheel in the
# folder WHEELS, and the extras that the server needs. REQUIREMENTS pins what it stands on.
set -eu
wheel=$(ls "$1"/holdfast-*.whl | tail -1)
python3 -m venv "$2"
"$2/bin/python" -m pip install --quiet --disable-pip-version-check \
    ${3:+--constraint "$3"} "holdfast[cli,server,postgres,models] @ file://$(realpath "$wheel")"
