package wasmbin

import "fmt"

// Op is the operation of an instruction: its first byte, or, for the prefixes 0xfc and
// 0xfd, the prefix in the high byte and the number that follows it in the low byte.
type Op uint16

// The operations that code outside this package has to tell apart. All others differ only in
// their immediates, and a meter charges the same price for each of them.
const (
	OpUnreachable        Op = 0x00
	OpNop                Op = 0x01
	OpBlock              Op = 0x02
	OpLoop               Op = 0x03
	OpIf                 Op = 0x04
	OpElse               Op = 0x05
	OpTry                Op = 0x06
	OpCatch              Op = 0x07
	OpThrow              Op = 0x08
	OpRethrow            Op = 0x09
	OpThrowRef           Op = 0x0a
	OpEnd                Op = 0x0b
	OpBr                 Op = 0x0c
	OpBrIf               Op = 0x0d
	OpBrTable            Op = 0x0e
	OpReturn             Op = 0x0f
	OpCall               Op = 0x10
	OpCallIndirect       Op = 0x11
	OpReturnCall         Op = 0x12
	OpReturnCallIndirect Op = 0x13
	OpDelegate           Op = 0x18
	OpCatchAll           Op = 0x19
	OpDrop               Op = 0x1a
	OpSelect             Op = 0x1b
	OpSelectTyped        Op = 0x1c
	OpTryTable           Op = 0x1f
	OpLocalGet           Op = 0x20
	OpLocalSet           Op = 0x21
	OpLocalTee           Op = 0x22
	OpGlobalGet          Op = 0x23
	OpGlobalSet          Op = 0x24
	OpTableGet           Op = 0x25
	OpTableSet           Op = 0x26
	OpI32Load            Op = 0x28
	OpI64Store32         Op = 0x3e
	OpMemorySize         Op = 0x3f
	OpMemoryGrow         Op = 0x40
	OpI32Const           Op = 0x41
	OpI64Const           Op = 0x42
	OpF32Const           Op = 0x43
	OpF64Const           Op = 0x44
	OpI32Eqz             Op = 0x45
	OpI32Eq              Op = 0x46
	OpI32Ne              Op = 0x47
	OpI32LtU             Op = 0x49
	OpI32GtU             Op = 0x4b
	OpI32LeU             Op = 0x4d
	OpI64Eqz             Op = 0x50
	OpI64LtS             Op = 0x53
	OpI64GtU             Op = 0x56
	OpI64GeS             Op = 0x59
	OpI32Add             Op = 0x6a
	OpI32Sub             Op = 0x6b
	OpI32Mul             Op = 0x6c
	OpI64Add             Op = 0x7c
	OpI64Sub             Op = 0x7d
	OpI64Mul             Op = 0x7e
	OpI64Or              Op = 0x84
	OpI64Shl             Op = 0x86
	OpI64ShrU            Op = 0x88
	OpI32WrapI64         Op = 0xa7
	OpI64ExtendI32U      Op = 0xad
	OpRefNull            Op = 0xd0
	OpRefIsNull          Op = 0xd1
	OpRefFunc            Op = 0xd2
	OpMemoryInit         Op = 0xfc08
	OpDataDrop           Op = 0xfc09
	OpMemoryCopy         Op = 0xfc0a
	OpMemoryFill         Op = 0xfc0b
	OpTableInit          Op = 0xfc0c
	OpElemDrop           Op = 0xfc0d
	OpTableCopy          Op = 0xfc0e
	OpTableGrow          Op = 0xfc0f
	OpTableFill          Op = 0xfc11
	OpV128Const          Op = 0xfd0c
)

// opNames names the operations that error messages mention.
var opNames = map[Op]string{
	OpUnreachable: "unreachable", OpElse: "else", OpEnd: "end", OpGlobalGet: "global.get", OpGlobalSet: "global.set",
	OpCall: "call", OpReturnCall: "return_call", OpRefFunc: "ref.func", OpBr: "br", OpBrIf: "br_if", OpBrTable: "br_table",
	OpLocalGet: "local.get", OpLocalSet: "local.set", OpLocalTee: "local.tee", OpCallIndirect: "call_indirect",
	OpTableInit: "table.init", OpElemDrop: "elem.drop",
	OpCatch: "catch", OpThrow: "throw", OpRethrow: "rethrow", OpDelegate: "delegate", OpCatchAll: "catch_all", OpTryTable: "try_table",
}

// String returns the name of the operation in the text format, or its number.
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return fmt.Sprintf("instruction %#x", uint16(op))
}

// constant reports whether constant expressions may contain the operation.
func (op Op) constant() bool {
	switch op {
	case OpI32Const, OpI64Const, OpF32Const, OpF64Const, OpV128Const, OpGlobalGet, OpRefNull, OpRefFunc,
		OpI32Add, OpI32Sub, OpI32Mul, OpI64Add, OpI64Sub, OpI64Mul:
		return true
	}
	return false
}

// A form stands for the immediates of an instruction in the tables below.
type form = byte

const (
	formBad        form = '.' // not an instruction
	formNone       form = '-'
	formBlock      form = 'B' // block type
	formIndex      form = 'x' // X: label, local, global, function, table, type, segment
	formIndex2     form = 'X' // X, Y
	formIndexZero  form = 'z' // X and a zero byte
	formZero       form = '0' // a zero byte
	formZero2      form = 'Z' // two
	formBrTable    form = 'T'
	formSelect     form = 's' // types
	formMemArg     form = 'm'
	formMemArgLane form = 'M'
	formLane       form = 'l'
	formI32        form = 'i'
	formI64        form = 'I'
	formBytes4     form = '4'
	formBytes8     form = '8'
	formBytes16    form = 'v'
	formHeap       form = 'h' // type of ref.null
	formPrefix     form = 'p'
	formTyped      form = 't' // typed function references
	formExceptions form = 'e'
	formGC         form = 'g'
	formThreads    form = 'a' // atomic instructions
)

// The forms of all instructions: of one byte, after 0xfc, and after 0xfd.
const (
	oneByteForms = "" +
		"--BBB-eeeee-xxT-" + // 00
		"xXxXtt..ee--s..e" + // 10
		"xxxxxxx.mmmmmmmm" + // 20
		"mmmmmmmmmmmmmmm0" + // 30
		"0iI48-----------" + // 40
		"----------------" + // 50
		"----------------" + // 60
		"----------------" + // 70
		"----------------" + // 80
		"----------------" + // 90
		"----------------" + // a0
		"----------------" + // b0
		"-----..........." + // c0
		"h-x.ttt........." + // d0
		"................" + // e0
		"...........gppp." // f0
	miscForms = "" +
		"--------zxZ0XxXx" + // 00
		"xx.............." // 10
	vectorForms = "" +
		"mmmmmmmmmmmmvv--" + // 00
		"-----lllllllllll" + // 10
		"lll-------------" + // 20
		"----------------" + // 30
		"----------------" + // 40
		"----MMMMMMMMmm--" + // 50
		"----------------" + // 60
		"----------------" + // 70
		"----------------" + // 80
		"----------.-----" + // 90
		"--.--..--------." + // a0
		".-...------.----" + // b0
		"--.--..--------." + // c0
		".-...-----------" + // d0
		"--.-----------.-" + // e0
		"----------------" // f0
)
