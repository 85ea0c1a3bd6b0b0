#!/bin/sh
# Makes keys and certificates in a new folder: make-secrets.sh FOLDER [HOST...]
# or the servers' certificate anew, with the authority that is there: make-secrets.sh --renew FOLDER [HOST...]
# or, in a folder that is there, the key by which a second site copies this one: make-secrets.sh --copy FOLDER
# HOST are the names and addresses of the NATS servers. It needs openssl, and nk: the one that
# NK names, that of the archive or the package that has this script, or one that it runs with go.
# See README.md for which file is for whom.
set -eu
unset CDPATH # with it, cd may go to another folder
renew=
copy=
case ${1-} in
  --renew) renew=yes && shift ;;
  --copy) copy=yes && shift ;;
esac
if [ $# -eq 0 ] || { [ "$copy" ] && [ $# -gt 1 ]; }; then
  echo 'usage: make-secrets.sh [--renew] FOLDER [HOST...], or make-secrets.sh --copy FOLDER' >&2
  exit 2
fi
folder=$1
shift
command -v openssl >/dev/null || { echo 'make-secrets.sh needs openssl: apt-get install openssl' >&2; exit 1; }
program=${NK-}
for shipped in "$(cd "$(dirname "$0")" && pwd)/../../bin/nk" /usr/libexec/hookstart/nk; do
  [ "$program" ] || [ ! -x "$shipped" ] || program=$shipped
done
run_nk() {
  if [ "$program" ]; then "$program" "$@"; else go run github.com/nats-io/nkeys/nk@v0.4.16 "$@"; fi
}
# What openssl says is shown only if it fails.
openssl_quietly() {
  said=$(openssl "$@" 2>&1 >/dev/null) || { echo "$said" >&2; exit 1; }
}
if [ "$renew" ] && ! [ -f "$folder/ca.key" ]; then
  echo "make-secrets.sh --renew: $folder has no ca.key, which signs the certificate: copy it there first" >&2
  exit 1
fi
# The folder is for its owner only. The files in it are not, so that a container that gets one
# of them mounted can read it under its own user.
[ "$renew$copy" ] || (umask 077 && mkdir "$folder")
cd "$folder"
umask 022
# A run that fails leaves nothing that the next one trips over.
whole=$PWD
trap 'exit 1' HUP INT TERM
trap 'status=$?
  rm -f "$whole/tls.key.new" "$whole/tls.crt.new" "$whole/tls.csr" "$whole/tls.ext" "$whole/ca.srl" "$whole/copy.new"
  [ "$status" = 0 ] || [ "$renew$copy" ] || rm -rf "$whole"
  exit "$status"' EXIT

if [ "$copy" ]; then
  if [ -e copy.nk ] || ! [ -f nats.env ]; then
    echo "make-secrets.sh --copy: $folder has a copy.nk already, or no nats.env" >&2
    exit 1
  fi
  umask 077
  run_nk -gen user > copy.new
  public=$(run_nk -inkey copy.new -pubout)
  # The seed is in the environment of the second site's servers: keep it like admin.nk.
  echo "NATSD_COPY_SEED=$(cat copy.new)" > second-site.env
  echo "NATSD_COPY_NKEY=$public" >> nats.env
  mv copy.new copy.nk
  exit
fi

if [ -z "$renew" ]; then
  : > nats.env
  for role in ingress executor runner admin sys; do
    run_nk -gen user > "$role.nk"
    name=$(echo "$role" | tr '[:lower:]' '[:upper:]')
    public=$(run_nk -inkey "$role.nk" -pubout)
    echo "NATSD_${name}_NKEY=$public" >> nats.env
  done
  chmod 600 admin.nk sys.nk # no container mounts them
  openssl_quietly req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 \
    -subj '/CN=hookstart NATS' -keyout ca.key -out ca.crt
  # What seals tokens and senders' secrets in NATS: --secrets-key-file of executors and ingresses. Never made anew:
  # what the lost key sealed would be lost with it.
  sealing=$(openssl rand -base64 32)
  echo "k1:$sealing" > secrets.key
fi

names=DNS:localhost,IP:127.0.0.1
for host; do
  case $host in
    *[!0-9.]*) names=$names,DNS:$host ;;
    *) names=$names,IP:$host ;;
  esac
done
# openssl makes keys for the owner only; the server's must be readable like the others.
openssl_quietly req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
  -subj '/CN=hookstart NATS server' -keyout tls.key.new -out tls.csr
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" > tls.ext
openssl_quietly x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 \
  -extfile tls.ext -out tls.crt.new
# Written to, not replaced: a container may have one of these files mounted.
cat tls.key.new > tls.key
cat tls.crt.new > tls.crt
chmod 644 tls.key
