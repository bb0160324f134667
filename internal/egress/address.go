package egress

import (
	"fmt"
	"net/netip"
)

// kind is the purpose of an address.
type kind string

const (
	kindPublic      kind = "public"
	kindPrivate     kind = "private"
	kindLoopback    kind = "loopback"
	kindLinkLocal   kind = "link-local"
	kindMetadata    kind = "metadata"
	kindMulticast   kind = "multicast"
	kindUnspecified kind = "unspecified"
	kindReserved    kind = "reserved"
)

// special lists the addresses that are not public, from the IANA registries of
// special-purpose addresses. The first match decides.
var special = []struct {
	prefix netip.Prefix
	kind   kind
}{
	// Services that give credentials to anyone who can reach them.
	{netip.MustParsePrefix("169.254.169.254/32"), kindMetadata},
	{netip.MustParsePrefix("169.254.170.0/24"), kindMetadata},   // AWS ECS and EKS
	{netip.MustParsePrefix("100.100.100.200/32"), kindMetadata}, // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), kindMetadata},   // Azure
	{netip.MustParsePrefix("192.0.0.192/32"), kindMetadata},     // Oracle
	{netip.MustParsePrefix("fd00:ec2::/32"), kindMetadata},      // AWS
	{netip.MustParsePrefix("fd20:ce::254/128"), kindMetadata},   // Google
	{netip.MustParsePrefix("fd00:42::42/128"), kindMetadata},    // Scaleway

	{netip.MustParsePrefix("0.0.0.0/32"), kindUnspecified},
	{netip.MustParsePrefix("0.0.0.0/8"), kindReserved},
	{netip.MustParsePrefix("10.0.0.0/8"), kindPrivate},
	{netip.MustParsePrefix("100.64.0.0/10"), kindPrivate}, // carrier-grade NAT
	{netip.MustParsePrefix("127.0.0.0/8"), kindLoopback},
	{netip.MustParsePrefix("169.254.0.0/16"), kindLinkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), kindPrivate},
	{netip.MustParsePrefix("192.0.0.0/24"), kindReserved},
	{netip.MustParsePrefix("192.0.2.0/24"), kindReserved},
	{netip.MustParsePrefix("192.88.99.0/24"), kindReserved},
	{netip.MustParsePrefix("192.168.0.0/16"), kindPrivate},
	{netip.MustParsePrefix("198.18.0.0/15"), kindReserved},
	{netip.MustParsePrefix("198.51.100.0/24"), kindReserved},
	{netip.MustParsePrefix("203.0.113.0/24"), kindReserved},
	{netip.MustParsePrefix("224.0.0.0/4"), kindMulticast},
	{netip.MustParsePrefix("240.0.0.0/4"), kindReserved},

	{netip.MustParsePrefix("::/128"), kindUnspecified},
	{netip.MustParsePrefix("::1/128"), kindLoopback},
	{netip.MustParsePrefix("fc00::/7"), kindPrivate},
	{netip.MustParsePrefix("fe80::/10"), kindLinkLocal},
	{netip.MustParsePrefix("ff00::/8"), kindMulticast},
	{netip.MustParsePrefix("2001::/23"), kindReserved},     // Teredo, benchmarks, identifiers
	{netip.MustParsePrefix("2001:db8::/32"), kindReserved}, // documentation
	{netip.MustParsePrefix("2002::/16"), kindReserved},     // 6to4: contains any IPv4 address
	{netip.MustParsePrefix("3fff::/20"), kindReserved},     // documentation
	{netip.MustParsePrefix("2000::/3"), kindPublic},        // the rest of the assigned addresses
	{netip.MustParsePrefix("::/0"), kindReserved},
}

// nat64 addresses represent an IPv4 address. On a network without IPv4, every public
// IPv4 host has one.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func classify(addr netip.Addr) kind {
	addr = addr.Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		if classify(netip.AddrFrom4([4]byte(b[12:]))) == kindPublic {
			return kindPublic
		}
		return kindReserved
	}

	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.kind
		}
	}
	return kindPublic
}

// addressError is an address that the rule of a request does not admit.
type addressError struct {
	addr netip.Addr
	kind kind
}

func (e *addressError) Error() string {
	switch e.kind {
	case kindPrivate, kindLoopback:
		return fmt.Sprintf("%s is a %s address: only a rule with private: true admits it", e.addr, e.kind)
	case kindMulticast, kindUnspecified:
		return fmt.Sprintf("%s is %s: no rule admits it", e.addr, article(e.kind))
	}
	return fmt.Sprintf("%s is %s: only a rule for this address itself, with private: true, admits it", e.addr, article(e.kind))
}

func article(k kind) string {
	if k == kindUnspecified {
		return "an unspecified address"
	}
	return "a " + string(k) + " address"
}

// admitAddress decides whether a connection to an address is admitted. named is the
// host of the request if that is an address.
func admitAddress(addr netip.Addr, private bool, named netip.Addr) error {
	if addr.Zone() != "" {
		return &addressError{addr, kindLinkLocal}
	}

	addr = addr.Unmap()
	k := classify(addr)
	switch k {
	case kindPublic:
		return nil
	case kindPrivate, kindLoopback:
		if private {
			return nil
		}
	case kindMulticast, kindUnspecified:
	default:
		if private && named == addr {
			return nil
		}
	}
	return &addressError{addr, k}
}
