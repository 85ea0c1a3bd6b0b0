curl -X POST '{URL}' \
  -H 'Content-Type: application/json' \
  -H "{HEADER}: try-$(date +%s)" \
  -d '{"hello": "world"}'
