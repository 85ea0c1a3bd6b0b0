// Package edit changes the registry: accounts, workflows, tokens, plans. The executor links it, and tests; an
// ingress only reads.
//
// An Editor's method returns when its change is in force at every process, see package agree. Its verdicts come
// from a Directory, the registry's records in memory. A process that was frozen, or cut from NATS, may know old
// ones: whatever the directory does not let it write is said only once the directory was surely up to date.
package edit
