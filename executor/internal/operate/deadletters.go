package operate

// messagePrefix begins the ID of a dead letter that is no execution.
const messagePrefix = "message-"
