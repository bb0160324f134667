package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// guest is a memory and an image at an offset, the same each time for a seed.
func guest(seed uint64, pages, changes int) (memory, image []byte, at uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	memory = make([]byte, pages*pageSize)
	at = uint64(random.IntN(pageSize))
	image = make([]byte, min(len(memory)-int(at), 3*pageSize/2))
	for i := range image {
		image[i] = byte(random.Uint32() & random.Uint32() & 0x3f)
	}
	copy(memory[at:], image)
	for range changes {
		from := random.IntN(len(memory))
		for i := range min(random.IntN(600), len(memory)-from) {
			memory[from+i] = byte(random.Uint32())
		}
	}
	return memory, image, at
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(30) {
		memory, image, at := guest(seed, 1+int(seed%4), int(seed*seed))
		c := Checkpoint{Plugin: Digest{1, byte(seed)}, Image: DigestImage(image, at), Globals: []uint64{1 << 63, seed}, Host: fmt.Append(nil, seed)}
		c.Compare(memory, image, at, nil)
		data, err := c.Encode()
		require.NoError(t, err)

		back, err := Decode(data, uint64(len(memory)))
		require.NoError(t, err)
		require.Equal(t, [2]Digest{c.Plugin, c.Image}, [2]Digest{back.Plugin, back.Image})
		require.Equal(t, c.Globals, back.Globals)
		require.Equal(t, c.Host, back.Host)
		again := make([]byte, back.Size)
		copy(again[at:], image)
		back.Apply(again)
		require.Equal(t, memory, again)
		repeated, err := back.Encode()
		require.NoError(t, err)
		require.Equal(t, data, repeated, "the same checkpoint has the same bytes")

		_, err = Decode(data, uint64(len(memory))-1)
		require.ErrorIs(t, err, ErrTooLarge)
	}
}

// TestEncodeRefuses: what Decode would refuse is not stored.
func TestEncodeRefuses(t *testing.T) {
	for _, c := range []Checkpoint{{Globals: make([]uint64, MaxGlobals+1)}, {Host: make([]byte, MaxHost+1)}} {
		_, err := c.Encode()
		require.ErrorIs(t, err, ErrTooLarge)
	}
}

// TestUnchanged: what is as in the image takes no room, wherever that begins and ends.
func TestUnchanged(t *testing.T) {
	for at := range uint64(600) {
		memory, image := make([]byte, pageSize), bytes.Repeat([]byte{7}, int(at))
		copy(memory[at:], image)
		var c Checkpoint
		c.Compare(memory, image, at, nil)
		require.Zero(t, c.Changed(), "at %d", at)

		memory[at+uint64(len(image))]++
		c.Compare(memory, image, at, nil)
		require.Equal(t, block, c.Changed(), "after %d", at)
	}
}

// TestComparePages: of a memory whose written pages are known no others are read.
func TestComparePages(t *testing.T) {
	const page = 4 << 10
	for seed := range uint64(20) {
		memory, image, at := guest(seed, 2, int(seed))
		var all Checkpoint
		all.Compare(memory, image, at, nil)
		pages := &Pages{Size: page, At: []uint64{0}} // also one that was written to and is as it was
		for _, r := range all.changed {
			for p := r.at / page * page; p < r.at+uint64(len(r.bytes)); p += page {
				if p > pages.At[len(pages.At)-1] {
					pages.At = append(pages.At, p)
				}
			}
		}

		var some Checkpoint
		some.Compare(memory, image, at, pages)
		require.Equal(t, all, some)
		some.Compare(memory, image, at, &Pages{Size: page})
		require.Zero(t, some.Changed())
	}
}

func TestDigestImage(t *testing.T) {
	want := DigestImage([]byte{1, 2}, 10)
	require.Equal(t, want, DigestImage([]byte{0, 0, 1, 2, 0}, 8))
	require.NotEqual(t, want, DigestImage([]byte{1, 2}, 11))
	require.Equal(t, DigestImage(nil, 0), DigestImage(make([]byte, 100), 5))
}

// TestGolden: checkpoints that were kept are read by every later version, on every
// processor.
func TestGolden(t *testing.T) {
	kept, err := hex.DecodeString(golden)
	require.NoError(t, err)
	c, err := Decode(kept, pageSize)
	require.NoError(t, err)
	memory := make([]byte, c.Size)
	copy(memory[300:], "an image")
	c.Apply(memory)

	require.Equal(t, Digest(bytes.Repeat([]byte{1}, 32)), c.Plugin)
	require.Equal(t, DigestImage([]byte("an image"), 300), c.Image)
	require.Equal(t, []uint64{1, 1 << 40}, c.Globals)
	require.Equal(t, `{"v":1}`, string(c.Host))
	require.Equal(t, "a changed one", string(memory[300:313]))
	require.Equal(t, "the end", string(memory[pageSize-7:]))
	sum := sha256.Sum256(memory)
	require.Equal(t, "b2cd0e75", hex.EncodeToString(sum[:4]))
}

const golden = "746863700128b52ffd44006201050300c4040111cbd2a30abb922aeca008a45aee91ba14f8bb5697a4409a569039019b52f10d80800402010000010000077b2276223a317d020101fd0161206368616e676564206f6e6574686520656e6406009d4005a0c21fe00150673db73d8dbb02423064c8"

func sample() Checkpoint {
	memory, image := make([]byte, pageSize), []byte("an image")
	copy(memory[300:], "a changed one")
	copy(memory[pageSize-7:], "the end")
	c := Checkpoint{Plugin: Digest(bytes.Repeat([]byte{1}, 32)), Image: DigestImage(image, 300), Globals: []uint64{1, 1 << 40}, Host: []byte(`{"v":1}`)}
	c.Compare(memory, image, 300, nil)
	return c
}

// TestHostile: bytes from a disk may be anything.
func TestHostile(t *testing.T) {
	whole := sample()
	data, err := whole.Encode()
	require.NoError(t, err)
	fixed := make([]byte, 64)
	numbers := func(n ...uint64) []byte {
		body := slices.Clone(fixed)
		for _, v := range n {
			body = binary.AppendUvarint(body, v)
		}
		return body
	}
	changed := slices.Clone(data)
	changed[len(changed)-20] ^= 1
	bomb, err := zstd.NewWriter(nil)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":                    {nil, ErrDamaged},
		"only the beginning":         {data[:len(magic)], ErrDamaged},
		"another version":            {append([]byte("thcp\x02"), data[len(magic):]...), ErrDamaged},
		"cut":                        {data[:len(data)-1], ErrDamaged},
		"changed":                    {changed, ErrDamaged},
		"more after it":              {append(slices.Clone(data), 0), ErrDamaged},
		"no body":                    {pack(nil), ErrDamaged},
		"half a digest":              {pack(fixed[:40]), ErrDamaged},
		"a memory that is too large": {pack(numbers(1 << 40)), ErrTooLarge},
		"half a page":                {pack(numbers(100)), ErrDamaged},
		"globals without end":        {pack(numbers(pageSize, 1<<60)), ErrDamaged},
		"fewer globals":              {pack(numbers(pageSize, 3)), ErrDamaged},
		"a host without end":         {pack(numbers(pageSize, 0, 1<<60)), ErrDamaged},
		"runs without end":           {pack(numbers(pageSize, 0, 0, 1<<60)), ErrDamaged},
		"a run behind the end":       {pack(numbers(pageSize, 0, 0, 1, 256, 1)), ErrDamaged},
		"a run over the end":         {pack(numbers(pageSize, 0, 0, 1, 255, 2)), ErrDamaged},
		"runs that overflow":         {pack(numbers(pageSize, 0, 0, 2, 1, 1, 1<<63, 1<<63)), ErrDamaged},
		"blocks that are missing":    {pack(numbers(pageSize, 0, 0, 1, 0, 1)), ErrDamaged},
		"an endless number":          {pack(append(slices.Clone(fixed), bytes.Repeat([]byte{0xff}, 20)...)), ErrDamaged},
		"too many bytes":             {pack(append(numbers(pageSize, 0, 0, 0), 1)), ErrDamaged},
		"a bomb":                     {bomb.EncodeAll(make([]byte, 1<<30), []byte(magic)), ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(c.data, pageSize)
			require.ErrorIs(t, err, c.want)
		})
	}
}

// FuzzDecode: what Decode takes, it gives back, and Apply stays within the memory.
func FuzzDecode(f *testing.F) {
	whole := sample()
	seed, err := whole.Encode()
	require.NoError(f, err)
	f.Add(seed)
	f.Add(pack(binary.AppendUvarint(make([]byte, 64), pageSize)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data, 4*pageSize)
		if err != nil {
			return
		}
		c.Apply(make([]byte, c.Size))
		data, err = c.Encode()
		require.NoError(t, err)
		again, err := Decode(data, 4*pageSize)
		require.NoError(t, err)
		require.Equal(t, c.Globals, again.Globals)
	})
}

func TestImage(t *testing.T) {
	for seed := range uint64(10) {
		memory, image, at := guest(seed, 4, 3)
		data := EncodeImage(Image{image, at})
		back, err := DecodeImage(data, DigestImage(image, at), uint64(len(memory)))
		require.NoError(t, err)
		require.True(t, back.Apply(memory))
		require.Equal(t, DigestImage(image, at), DigestImage(memory, 0), "nothing else is left in the memory")

		require.False(t, back.Apply(memory[:at+uint64(len(image))-1]))
		_, err = DecodeImage(data, DigestImage(image, at+1), uint64(len(memory)))
		require.ErrorIs(t, err, ErrDamaged, "it is another one")
		_, err = DecodeImage(data, DigestImage(image, at), at+uint64(len(image))-1)
		require.ErrorIs(t, err, ErrDamaged, "it is larger than the memory")
		_, err = DecodeImage(data[:len(data)-1], DigestImage(image, at), uint64(len(memory)))
		require.ErrorIs(t, err, ErrDamaged)
	}
	bomb := EncodeImage(Image{Bytes: make([]byte, 64<<20)})
	require.Less(t, len(bomb), 1<<20)
	_, err := DecodeImage(bomb, Digest{}, pageSize)
	require.ErrorIs(t, err, ErrTooLarge)
}

func FuzzDecodeImage(f *testing.F) {
	f.Add(EncodeImage(Image{[]byte("image"), 5}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if i, err := DecodeImage(data, DigestImage([]byte("image"), 5), 4*pageSize); err == nil {
			require.True(t, i.Apply(make([]byte, 4*pageSize)))
		}
	})
}

// FuzzParse is FuzzDecode for what was compressed.
func FuzzParse(f *testing.F) {
	f.Add(binary.AppendUvarint(make([]byte, 64), pageSize))
	f.Add(slices.Concat(make([]byte, 64), []byte{128, 128, 4, 0, 0, 1, 2, 1}, make([]byte, block)))
	f.Fuzz(func(t *testing.T, body []byte) {
		if c, err := parse(body, 4*pageSize); err == nil {
			c.Apply(make([]byte, c.Size))
		}
	})
}

func BenchmarkCheckpoint(b *testing.B) {
	for _, c := range []struct {
		name           string
		pages, changes int
	}{{"1.3MiB", 20, 190}, {"9MiB", 144, 20_000}} {
		memory, image, at := guest(1, c.pages, c.changes)
		var one Checkpoint
		one.Compare(memory, image, at, nil)
		data, err := one.Encode()
		require.NoError(b, err)
		b.Run(c.name+"/compare", func(b *testing.B) {
			b.ReportMetric(float64(one.Changed()), "changed-bytes")
			for b.Loop() {
				one.Compare(memory, image, at, nil)
			}
		})
		b.Run(c.name+"/encode", func(b *testing.B) {
			b.ReportMetric(float64(len(data)), "stored-bytes")
			for b.Loop() {
				_, _ = one.Encode()
			}
		})
		b.Run(c.name+"/decode", func(b *testing.B) {
			for b.Loop() {
				if _, err := Decode(data, uint64(len(memory))); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/apply", func(b *testing.B) {
			for b.Loop() {
				one.Apply(memory)
			}
		})
	}
}
