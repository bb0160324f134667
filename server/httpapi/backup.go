package httpapi

import "net/http"

// backup responds with a backup of the data folder, and sends it while it is being made.
func backup(r *request) error {
	r.w.Header().Set("Content-Type", "application/zip")
	err := r.api.service.Backup(r.Context(), r.w)
	if err != nil && r.w.status != 0 {
		r.api.log.Warn("backup not completed", "error", err)
		panic(http.ErrAbortHandler) // the client must notice that the end is missing
	}
	return err
}
