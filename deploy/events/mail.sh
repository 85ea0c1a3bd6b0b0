#!/bin/sh
# Sends an operator event as a mail, with the program sendmail that every mail server brings
# (Postfix, Exim, msmtp, nullmailer).
#
#   MAIL_TO=ops@example.com hookstart run --queue alerts --raw -- ./mail.sh
#
# MAIL_TO    the addresses, separated by commas.
# MAIL_FROM  the sender's address. Without it, sendmail chooses one.
# SENDMAIL   the program; sendmail by default, which is looked for in /usr/sbin and /usr/lib, too.
set -eu

: "${MAIL_TO:?must be the address to which events are mailed}"
PATH=$PATH:/usr/sbin:/usr/lib
input=$(cat)
field() { printf '%s' "$input" | sed -n 's/.*[,{]"'"$1"'":"\([A-Za-z0-9_.:-]*\)"[,}].*/\1/p'; }
text=$(printf '%s' "$input" | sed -n 's/.*[,{]"text":"\(..*\)"}$/\1/p' | sed -e 's/\\n/ /g' -e 's/\\"/"/g' -e 's/\\\\/\\/g')
count=$(printf '%s' "$input" | sed -n 's/.*[,{]"count":\([0-9]*\)[,}].*/\1/p')
kind=$(field kind)
if [ -z "$kind" ] || [ -z "$text" ]; then
	echo 'the input is no operator event: it has no kind or no text' >&2
	exit 1
fi
about=$(field workflowId)
[ -n "$about" ] || about=$(field queue)
{
	printf 'To: %s\n' "$MAIL_TO"
	[ -z "${MAIL_FROM:-}" ] || printf 'From: %s\n' "$MAIL_FROM"
	printf 'Subject: hookstart: %s%s%s\n' "$kind" "${about:+ $about}" "$([ "${count:-1}" -le 1 ] || echo " ($count times)")"
	# The same for each attempt: a mailbox shows it once.
	printf 'Message-ID: <%s@hookstart.invalid>\n' "${HOOKSTART_EXECUTION_ID:-none}"
	printf 'MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\nAuto-Submitted: auto-generated\n\n'
	printf '%s\n\n' "$text"
	for name in kind at accountId workflowId executionId queue; do
		value=$(field "$name")
		[ -z "$value" ] || printf '%s: %s\n' "$name" "$value"
	done
	printf 'count: %s\n' "${count:-1}"
} | "${SENDMAIL:-sendmail}" -t -i || {
	echo "sendmail failed; it is tried again" >&2
	exit 75
}
