# serve.sh: migrates the store of server.toml's DATABASE_URL, then serves the agents in this folder.
set -eu
holdfast migrate --store "$DATABASE_URL"
exec holdfast serve --config server.toml --host "${HOST:-0.0.0.0}" --port "${PORT:-7700}"
