package wasmbin

import "fmt"

// Op is the operation of an instruction: its first byte, or for the prefixes
// 0xfc and 0xfd the prefix in the high and the number after it in the low byte.
type Op uint16

// The operations that code outside this package has to tell apart. All others
// only have immediates and, for a meter, one price.
const (
	OpUnreachable        Op = 0x00
	OpNop                Op = 0x01
	OpBlock              Op = 0x02
	OpLoop               Op = 0x03
	OpIf                 Op = 0x04
	OpElse               Op = 0x05
	OpThrow              Op = 0x08
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
	OpDrop               Op = 0x1a
	OpSelect             Op = 0x1b
	OpSelectType         Op = 0x1c
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
	OpI32ShrU            Op = 0x76
	OpI64Add             Op = 0x7c
	OpI64Sub             Op = 0x7d
	OpI64Mul             Op = 0x7e
	OpI64Shl             Op = 0x86
	OpI64ShrU            Op = 0x88
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
	OpTableSize          Op = 0xfc10
	OpTableFill          Op = 0xfc11
	OpV128Const          Op = 0xfd0c
)

// opNames names what error messages are about.
var opNames = map[Op]string{
	OpUnreachable: "unreachable", OpElse: "else", OpEnd: "end", OpGlobalGet: "global.get", OpGlobalSet: "global.set",
	OpCall: "call", OpReturnCall: "return_call", OpRefFunc: "ref.func", OpBr: "br", OpBrIf: "br_if", OpBrTable: "br_table",
	OpLocalGet: "local.get", OpLocalSet: "local.set", OpLocalTee: "local.tee", OpCallIndirect: "call_indirect",
	OpTableInit: "table.init", OpElemDrop: "elem.drop",
}

// String is the name of the operation in the text format, or its number.
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

// form is what immediates an instruction has.
type form byte

const (
	formBad  form = iota
	formNone      // no immediate
	formBlock
	formTry
	formIndex // X: label, local, global, function, table, type, tag, segment
	formBrTable
	formIndex2 // X, Y
	formSelect // types
	formMemArg
	formMemArgLane
	formLane
	formZero  // one reserved zero byte
	formZero2 // two
	formIndexZero
	formI32
	formI64
	formBytes4
	formBytes8
	formBytes16
	formHeap // ref.null
	formPrefix
	formTyped   // typed function references
	formLegacy  // legacy exception handling
	formGC      // 0xfb
	formThreads // 0xfe
)

// forms has the form of each one-byte operation.
var forms = oneByteForms()

func oneByteForms() (forms [256]form) {
	for _, r := range []struct {
		form        form
		first, last Op
	}{
		{formNone, OpUnreachable, OpNop}, {formBlock, OpBlock, OpIf}, {formNone, OpElse, OpElse},
		{formLegacy, 0x06, 0x07}, {formIndex, OpThrow, OpThrow}, {formLegacy, 0x09, 0x09}, {formNone, OpThrowRef, OpEnd},
		{formIndex, OpBr, OpBrIf}, {formBrTable, OpBrTable, OpBrTable}, {formNone, OpReturn, OpReturn},
		{formIndex, OpCall, OpCall}, {formIndex2, OpCallIndirect, OpCallIndirect},
		{formIndex, OpReturnCall, OpReturnCall}, {formIndex2, OpReturnCallIndirect, OpReturnCallIndirect},
		{formTyped, 0x14, 0x15}, {formLegacy, 0x18, 0x19}, {formNone, OpDrop, OpSelect},
		{formSelect, OpSelectType, OpSelectType}, {formTry, OpTryTable, OpTryTable},
		{formIndex, OpLocalGet, OpTableSet}, {formMemArg, OpI32Load, OpI64Store32}, {formZero, OpMemorySize, OpMemoryGrow},
		{formI32, OpI32Const, OpI32Const}, {formI64, OpI64Const, OpI64Const},
		{formBytes4, OpF32Const, OpF32Const}, {formBytes8, OpF64Const, OpF64Const}, {formNone, OpI32Eqz, 0xc4},
		{formHeap, OpRefNull, OpRefNull}, {formNone, OpRefIsNull, OpRefIsNull}, {formIndex, OpRefFunc, OpRefFunc},
		{formTyped, 0xd4, 0xd6}, {formGC, 0xfb, 0xfb}, {formPrefix, 0xfc, 0xfd}, {formThreads, 0xfe, 0xfe},
	} {
		for op := r.first; op <= r.last; op++ {
			forms[op] = r.form
		}
	}
	return forms
}

// miscForm is the form of 0xfc followed by n.
func miscForm(n uint32) form {
	switch {
	case n > 0x11:
		return formBad
	case n <= 7:
		return formNone
	}

	switch Op(0xfc00 | n) {
	case OpMemoryInit:
		return formIndexZero
	case OpMemoryCopy:
		return formZero2
	case OpMemoryFill:
		return formZero
	case OpTableInit, OpTableCopy:
		return formIndex2
	}

	return formIndex // data.drop, elem.drop, table.grow, table.size, table.fill
}

// vectorForm is the form of 0xfd followed by n.
func vectorForm(n uint32) form {
	switch {
	case n <= 0x0b, n == 0x5c, n == 0x5d:
		return formMemArg
	case n == 0x0c, n == 0x0d:
		return formBytes16
	case n >= 0x15 && n <= 0x22:
		return formLane
	case n >= 0x54 && n <= 0x5b:
		return formMemArgLane
	case n > 0xff, unusedVector[n]:
		return formBad
	}

	return formNone
}

// unusedVector marks the numbers below 0x100 that name no vector instruction.
var unusedVector = map[uint32]bool{
	0x9a: true, 0xa2: true, 0xa5: true, 0xa6: true, 0xaf: true, 0xb0: true, 0xb2: true, 0xb3: true, 0xb4: true,
	0xbb: true, 0xc2: true, 0xc5: true, 0xc6: true, 0xcf: true, 0xd0: true, 0xd2: true, 0xd3: true, 0xd4: true,
	0xe2: true, 0xee: true,
}
