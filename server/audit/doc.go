// Package audit keeps an append-only log of a service's actions: calls and their callers,
// grants, approvals, refusals, and HTTP requests of plugins. The log is JSON, one line
// per [Event], in files of bounded size.
//
// Each line contains the SHA-256 of the line before it, as in hash-chained logs (Schneier
// and Kelsey, Secure Audit Logs to Support Computer Forensics, 1999). Changing, inserting
// or removing a line breaks the chain: see [Verify]. Removing lines at the end, or
// rebuilding the chain, can only be detected with a [Head] kept elsewhere: the host
// writes it to its own log when a process starts and ends.
//
// A line is written before [Log.Append] returns, so it survives a crash of the process;
// it is on disk within a second. The audit log contains no arguments, results, bodies or
// secrets.
package audit
