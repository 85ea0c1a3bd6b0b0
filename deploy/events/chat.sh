#!/bin/sh
# Posts the text of an operator event to the incoming webhook of a chat: Slack, Mattermost,
# Rocket.Chat, Google Chat, and Discord with CHAT_FIELD=content. It needs curl.
#
#   CHAT_WEBHOOK=https://hooks.slack.com/services/… hookstart run --queue alerts --raw -- ./chat.sh
#
# CHAT_WEBHOOK  the URL that the chat has made. It is a secret: it is in no argument of a program.
# CHAT_FIELD    the field that holds the text; text by default.
set -eu

: "${CHAT_WEBHOOK:?must be the URL of the incoming webhook}"
# The input is {…,"text":"…"}: the text stays the JSON string that it is. Within a string, quotes
# are escaped, so that the pattern matches the field alone.
text=$(sed -n 's/.*[,{]"text":\("..*"\)}$/\1/p')
if [ -z "$text" ]; then
	echo 'the input is no operator event: it does not end with a field text' >&2
	exit 1
fi
body=$(mktemp)
trap 'rm -f "$body"' EXIT
printf '{"%s":%s}' "${CHAT_FIELD:-text}" "$text" >"$body"
status=$(printf 'url = "%s"\n' "$CHAT_WEBHOOK" | curl --silent --show-error --max-time 20 --output /dev/null \
	--write-out '%{http_code}' --header 'Content-Type: application/json' --data-binary "@$body" --config -) || exit 75
case $status in
2??) ;;
408 | 425 | 429 | 5??)
	echo "the chat answered $status; it is tried again" >&2
	exit 75
	;;
*)
	echo "the chat answered $status: is CHAT_WEBHOOK the URL that it has made?" >&2
	exit 1
	;;
esac
