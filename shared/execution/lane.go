package execution

import "hash/fnv"

// LanesPerQueue is the number of lanes of a queue that has ordered executions. The workflow and the
// order key of such an execution determine its lane. A group of runners runs the executions of one
// lane one after another.
const LanesPerQueue = 16

// LaneOf returns the lane of a workflow's executions that have the given order key. It is the
// FNV-1a hash (32 bits) of the workflow's ID, a NUL and the key, modulo LanesPerQueue.
func LaneOf(workflowID, orderKey string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(workflowID))
	_, _ = hash.Write([]byte{0})
	_, _ = hash.Write([]byte(orderKey))
	return int(hash.Sum32() % LanesPerQueue)
}
