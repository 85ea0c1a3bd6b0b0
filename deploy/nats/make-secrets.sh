#!/bin/sh
# Makes keys and certificates in a new folder: make-secrets.sh FOLDER [HOST...]
# or the servers' certificate anew, with the authority that is there: make-secrets.sh --renew FOLDER [HOST...]
# or, in a folder that is there, the key by which a second site copies this one: make-secrets.sh --copy FOLDER
# HOST are the names and addresses of the NATS servers. It needs openssl, and nk: the one that
# NK names, that of the archive or the package that has this script, or one that it runs with go.
# See README.md for which file is for whom.
set -eu
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
nk=${NK-}
for shipped in "$(cd "$(dirname "$0")" && pwd)/../../bin/nk" /usr/libexec/hookstart/nk; do
  [ "$nk" ] || [ ! -x "$shipped" ] || nk=$shipped
done
nk=${nk:-go run github.com/nats-io/nkeys/nk@v0.4.16}
# The folder is for its owner only. The files in it are not, so that a container that gets one
# of them mounted can read it under its own user.
[ "$renew$copy" ] || (umask 077 && mkdir "$folder")
cd "$folder"
umask 022

if [ "$copy" ]; then
  if [ -e copy.nk ] || ! [ -f nats.env ]; then
    echo "make-secrets.sh --copy: $folder has a copy.nk already, or no nats.env" >&2
    exit 1
  fi
  umask 077
  $nk -gen user > copy.new
  public=$($nk -inkey copy.new -pubout)
  # The seed is in the environment of the second site's servers: keep it like admin.nk.
  echo "NATSD_COPY_SEED=$(cat copy.new)" > second-site.env
  echo "NATSD_COPY_NKEY=$public" >> nats.env
  mv copy.new copy.nk
  exit
fi

if [ -z "$renew" ]; then
  : > nats.env
  for role in ingress executor runner admin sys; do
    $nk -gen user > "$role.nk"
    name=$(echo "$role" | tr '[:lower:]' '[:upper:]')
    echo "NATSD_${name}_NKEY=$($nk -inkey "$role.nk" -pubout)" >> nats.env
  done
  chmod 600 admin.nk sys.nk # no container mounts them
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 \
    -subj '/CN=hookstart NATS' -keyout ca.key -out ca.crt 2>/dev/null
  # What seals tokens and senders' secrets in NATS: --secrets-key-file of executors and ingresses. Never made anew:
  # what the lost key sealed would be lost with it.
  echo "k1:$(openssl rand -base64 32)" > secrets.key
fi

names=DNS:localhost,IP:127.0.0.1
for host; do
  case $host in
    *[!0-9.]*) names=$names,DNS:$host ;;
    *) names=$names,IP:$host ;;
  esac
done
# openssl makes keys for the owner only; the server's must be readable like the others.
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
  -subj '/CN=hookstart NATS server' -keyout tls.key -out tls.csr 2>/dev/null
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" > tls.ext
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 \
  -extfile tls.ext -out tls.crt 2>/dev/null
chmod 644 tls.key
rm -f tls.csr tls.ext ca.srl
