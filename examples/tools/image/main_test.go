package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(folder.Folder(t.TempDir()))) }

// halves is red on the left and blue on the right.
func halves(width, height int) *image.NRGBA {
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			picture.SetNRGBA(x, y, color.NRGBA{R: 255, A: 255})
			if x >= width/2 {
				picture.SetNRGBA(x, y, color.NRGBA{B: 255, A: 255})
			}
		}
	}
	return picture
}

func pngOf(t *testing.T, picture image.Image) []byte {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, picture))
	return file.Bytes()
}

func TestResize(t *testing.T) {
	p := newPlugin(folder.Folder(t.TempDir()))
	var asJPEG, asGIF bytes.Buffer
	require.NoError(t, jpeg.Encode(&asJPEG, halves(40, 20), nil))
	require.NoError(t, gif.Encode(&asGIF, halves(40, 20), nil))
	for name, c := range map[string]struct {
		data          []byte
		args          resizeArgs
		width, height int
		format        string
	}{
		"as it is":       {pngOf(t, halves(40, 20)), resizeArgs{}, 40, 20, "png"},
		"by width":       {pngOf(t, halves(40, 20)), resizeArgs{Width: 10}, 10, 5, "png"},
		"by height":      {asJPEG.Bytes(), resizeArgs{Height: 5}, 10, 5, "jpeg"},
		"larger":         {asGIF.Bytes(), resizeArgs{Width: 80}, 80, 40, "gif"},
		"contain":        {pngOf(t, halves(40, 20)), resizeArgs{Width: 10, Height: 10}, 10, 5, "png"},
		"contain, tall":  {pngOf(t, halves(20, 40)), resizeArgs{Width: 10, Height: 10}, 5, 10, "png"},
		"cover":          {pngOf(t, halves(40, 20)), resizeArgs{Width: 10, Height: 10, Fit: "cover"}, 10, 10, "png"},
		"cover, tall":    {pngOf(t, halves(20, 40)), resizeArgs{Width: 10, Height: 10, Fit: "cover"}, 10, 10, "png"},
		"stretch":        {pngOf(t, halves(40, 20)), resizeArgs{Width: 7, Height: 30, Fit: "stretch"}, 7, 30, "png"},
		"to JPEG":        {asGIF.Bytes(), resizeArgs{Format: "jpeg"}, 40, 20, "jpeg"},
		"to GIF":         {asJPEG.Bytes(), resizeArgs{Format: "gif", Width: 9}, 9, 5, "gif"},
		"a thin line":    {pngOf(t, halves(1000, 1)), resizeArgs{Width: 10}, 10, 1, "png"},
		"by a large one": {pngOf(t, halves(3000, 2000)), resizeArgs{Width: 100}, 100, 67, "png"},
	} {
		t.Run(name, func(t *testing.T) {
			c.args.Data, c.args.Quality = c.data, 90
			if c.args.Fit == "" {
				c.args.Fit = "contain"
			}
			out := guesttest.Call(p, "resize", c.args)
			require.True(t, out.IsSuccess(), out)
			require.Len(t, out.Content, 1)
			require.Equal(t, "image/"+c.format, out.Content[0].MIMEType)

			picture, format, err := image.Decode(bytes.NewReader(blob(t, out.Content[0].Data)))
			require.NoError(t, err)
			require.Equal(t, c.format, format)
			require.Equal(t, image.Rect(0, 0, c.width, c.height), picture.Bounds())
			red, _, blue, _ := picture.At(0, c.height/2).RGBA()
			require.Greater(t, red, 0xc000+blue, "left")
			red, _, blue, _ = picture.At(c.width-1, c.height/2).RGBA()
			require.Greater(t, blue, 0xc000+red, "right")
		})
	}
}

// blob is the data of a content block.
func blob(t *testing.T, data any) []byte {
	t.Helper()
	switch data := data.(type) {
	case []byte:
		return data
	case string:
		decoded, err := base64.StdEncoding.DecodeString(data)
		require.NoError(t, err)
		return decoded
	}
	t.Fatalf("unexpected %T", data)
	return nil
}

func TestTransparency(t *testing.T) {
	p := newPlugin(folder.Folder(t.TempDir()))
	out := guesttest.Call(p, "resize", resizeArgs{source: source{Data: pngOf(t, image.NewNRGBA(image.Rect(0, 0, 8, 8)))}, Format: "jpeg", Width: 4, Fit: "contain", Quality: 90})
	require.True(t, out.IsSuccess(), out)
	picture, _, err := image.Decode(bytes.NewReader(blob(t, out.Content[0].Data)))
	require.NoError(t, err)
	red, green, blue, _ := picture.At(1, 1).RGBA()
	require.Equal(t, [3]uint32{0xffff, 0xffff, 0xffff}, [3]uint32{red, green, blue})
}

// claim is a PNG that says that it has so many pixels, and has none.
func claim(width, height uint32) []byte {
	header := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)...)
	header = append(header, 8, 6, 0, 0, 0)
	file := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), header...)
	return binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(header))
}

func TestHostile(t *testing.T) {
	dir := t.TempDir()
	p := newPlugin(folder.Folder(dir))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	dot := pngOf(t, halves(2, 2))
	for name, c := range map[string]struct {
		args resizeArgs
		err  string
	}{
		"large":         {resizeArgs{source: source{Data: claim(100_000, 100_000)}}, "100000 × 100000 pixels"},
		"larger":        {resizeArgs{source: source{Data: claim(1<<31-1, 1<<31-1)}}, "image"},
		"empty":         {resizeArgs{source: source{Data: claim(0, 5)}}, "image"},
		"no pixels":     {resizeArgs{source: source{Data: claim(2, 2)}}, "the image is broken"},
		"large result":  {resizeArgs{source: source{Data: dot}, Width: 10_000}, "the result would have 10000 × 10000"},
		"thin":          {resizeArgs{source: source{Data: pngOf(t, halves(1, 1000))}, Width: 10_000}, "the result would have"},
		"neither":       {resizeArgs{}, "give either data or file"},
		"both":          {resizeArgs{source: source{Data: dot, File: "a"}}, "give either data or file"},
		"a path out":    {resizeArgs{source: source{File: "../a.png"}}, "leads out of the folder"},
		"a link out":    {resizeArgs{source: source{File: "link"}}, "leads out of the folder"},
		"a missing one": {resizeArgs{source: source{File: "a.png"}}, "a.png: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			c.args.Fit, c.args.Quality = "contain", 85
			out := guesttest.Call(p, "resize", c.args)
			require.Contains(t, out.Error, c.err)
		})
	}
}

func FuzzResize(f *testing.F) {
	for _, encode := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return png.Encode(b, halves(6, 4)) },
		func(b *bytes.Buffer) error { return jpeg.Encode(b, halves(6, 4), nil) },
		func(b *bytes.Buffer) error { return gif.Encode(b, halves(6, 4), nil) },
	} {
		var file bytes.Buffer
		require.NoError(f, encode(&file))
		f.Add(file.Bytes(), 3, 2, "cover")
		f.Add(file.Bytes(), 0, 1, "contain")
		f.Add(file.Bytes(), 9, 300, "stretch")
	}
	p := newPlugin(folder.Folder(f.TempDir()))
	f.Fuzz(func(t *testing.T, data []byte, width, height int, fit string) {
		args := resizeArgs{source: source{Data: data}, Width: min(max(width, 0), 500), Height: min(max(height, 0), 500), Fit: fit, Quality: 50}
		if fit != "cover" && fit != "stretch" {
			args.Fit = "contain"
		}
		if size, _, err := image.DecodeConfig(bytes.NewReader(data)); err == nil && size.Width*size.Height > 1<<18 {
			t.Skip()
		}
		out := guesttest.Call(p, "resize", args)
		require.True(t, out.IsSuccess() || out.Error != "", out)
	})
}
