import json, urllib.request, uuid

request = urllib.request.Request(
    "{URL}",
    data=json.dumps({"hello": "world"}).encode(),
    headers={
        "Content-Type": "application/json",
        "{HEADER}": str(uuid.uuid4()),
    },
)
with urllib.request.urlopen(request) as response:
    print(response.status, json.load(response))
