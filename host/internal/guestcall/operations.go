package guestcall

import "maps"

// Operations returns the operations of all capabilities, and op.cancel, which cancels other
// operations.
func Operations() map[string]Operation {
	all := map[string]Operation{"op.cancel": {allowed: func(*Call) bool { return true }, begin: atOnce(cancelOperation)}}
	for _, some := range []map[string]Operation{
		askOperations, checkpointOperations, clockOperations, grantedOperations, httpOperations, ofKV.operations(), messageOperations,
		reportOperations, secretOperations, ofSession.operations(), toolOperations,
	} {
		maps.Copy(all, some)
	}
	return all
}
