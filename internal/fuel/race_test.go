//go:build race

package fuel

// raceDetector is whether tests run under the race detector.
const raceDetector = true
