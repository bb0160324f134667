// Command go is the workloads in standard Go: each export does n rounds and
// returns a value that depends on all it computed.
package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

func main() {}

type item struct {
	Name  string            `json:"name"`
	Price float64           `json:"price"`
	Tags  []string          `json:"tags"`
	Attrs map[string]string `json:"attrs"`
}

//go:wasmexport jsons
func jsons(n int32) int32 {
	sum := 0
	for i := range int(n) {
		in := item{Name: "item " + strconv.Itoa(i), Price: float64(i) * 1.25, Tags: []string{"a", "b", "c"},
			Attrs: map[string]string{"color": "red", "size": strconv.Itoa(i % 50)}}
		b, err := json.Marshal(in)
		if err != nil {
			return -1
		}
		var out item
		if err := json.Unmarshal(b, &out); err != nil {
			return -1
		}
		sum += len(b) + len(out.Attrs["size"])
	}
	return int32(sum)
}

//go:wasmexport sorts
func sorts(n int32) int32 {
	x, h := uint32(1), uint32(0)
	words := make([]string, 2000)
	for range n {
		for i := range words {
			x = x*1664525 + 1013904223
			words[i] = strconv.Itoa(int(x >> 8))
		}
		sort.Strings(words)
		for _, w := range words {
			h = h*31 + uint32(len(w)) + uint32(w[0])
		}
	}
	return int32(h)
}

//go:wasmexport maps
func maps(n int32) int32 {
	m := make(map[uint32]uint32)
	x, h := uint32(1), uint32(0)
	for range n {
		for range 10_000 {
			x = x*1664525 + 1013904223
			m[x>>18] += x & 255
		}
	}
	for k, v := range m {
		h += k ^ v
	}
	return int32(h)
}

//go:wasmexport words
func words(n int32) int32 {
	re := regexp.MustCompile(`[a-z]+[0-9]{2,}`)
	text := strings.Repeat("lorem ipsum42 dolor 7 sit123 amet ", 30)
	sum := 0
	for range n {
		for _, f := range strings.Fields(text) {
			sum += len(f)
		}
		sum += len(re.FindAllString(text, -1))
		sum += bytes.Count([]byte(text), []byte("it"))
	}
	return int32(sum)
}

//go:wasmexport sieves
func sieves(n int32) int32 {
	count := int32(0)
	for range n {
		composite := make([]bool, 500_001)
		count = 0
		for i := 2; i < len(composite); i++ {
			if composite[i] {
				continue
			}
			count++
			for j := 2 * i; j < len(composite); j += i {
				composite[j] = true
			}
		}
	}
	return count
}

type node struct{ left, right *node }

func tree(depth int32) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

func (t *node) count() int32 {
	if t.left == nil {
		return 1
	}
	return 1 + t.left.count() + t.right.count()
}

//go:wasmexport trees
func trees(n int32) int32 {
	sum := int32(0)
	for range n {
		sum += tree(12).count()
	}
	return sum
}
