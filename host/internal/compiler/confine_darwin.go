package compiler

import "golang.org/x/sys/unix"

// niceness is the priority of low-priority builds.
const niceness = 10

// confineProcess limits the resources of this process.
func confineProcess(j job) error {
	if j.Low {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	}
	return limitProcess(j)
}
