fetch("{URL}", {
  method: "POST",
  headers: {
    "Content-Type": "application/json",
    "{HEADER}": "try-" + Date.now(),
  },
  body: JSON.stringify({ hello: "world" }),
}).then(async (response) => console.log(response.status, await response.json()));
