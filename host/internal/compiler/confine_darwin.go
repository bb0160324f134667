package compiler

import "golang.org/x/sys/unix"

// niceness is the priority of builds that nobody waits for.
const niceness = 10

// confineProcess limits what this process may take.
func confineProcess(j job) error {
	if j.Low {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	}
	return limitProcess(j)
}
