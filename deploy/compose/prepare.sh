#!/bin/sh
# Makes what compose.yaml needs, once: keys and certificates in secrets/, passwords and the public URL in .env.
set -eu
unset CDPATH # with it, cd may go to another folder
cd "$(dirname "$0")"
if [ -e .env ]; then
  echo 'there is a .env already: nothing is made anew' >&2
  exit 1
fi
# They are there already if a run failed after it had made them. tls.crt is the last file. Without it, make-secrets.sh
# was killed and refuses the folder, which must be removed.
[ -s secrets/tls.crt ] || ../nats/make-secrets.sh "$PWD/secrets" nats-0 nats-1 nats-2
# Senders and the executors' containers reach the ingresses here; without an address, senders of this machine only.
address=$(hostname -I 2>/dev/null | cut -d ' ' -f 1)
umask 077
trap 'rm -f .env.new' EXIT
for name in HOOKSTART_ADMIN_TOKEN POSTGRES_PASSWORD GRAFANA_PASSWORD; do
  value=$(openssl rand -hex 24)
  echo "$name=$value"
done > .env.new
echo "HOOKSTART_PUBLIC_URL=${HOOKSTART_PUBLIC_URL:-http://${address:-localhost}:8080}" >> .env.new
mv .env.new .env
