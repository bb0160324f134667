// Package audit keeps an append-only log of what a service did: who called what, what
// was granted, asked, refused and reached. It is JSON, a line for each [Event], in files
// of bounded size.
//
// Each line has the SHA-256 of the line before it, as hash chains of logs do (Schneier
// and Kelsey, Secure Audit Logs to Support Computer Forensics, 1999). A line that is
// changed, inserted or removed breaks the chain: see [Verify]. Lines removed from the
// end, or a chain made anew, are only seen by somebody who keeps a [Head] elsewhere: the
// log of the host has it at the start and the end of a process.
//
// A line is written before the call of [Log.Append] returns, so that it survives the
// death of the process; the disk has it within a second. The log has no arguments,
// results, bodies or secrets.
package audit
