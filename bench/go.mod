module github.com/toolhost/toolhost/bench

go 1.26.0

require (
	github.com/bytecodealliance/wasmtime-go/v39 v39.0.1
	github.com/tetratelabs/wazero v1.12.0
	github.com/toolhost/toolhost v0.0.0
)

require golang.org/x/sys v0.49.0 // indirect

replace github.com/toolhost/toolhost => ../
