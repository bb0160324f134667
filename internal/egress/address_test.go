package egress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	for addr, want := range map[string]kind{
		"1.1.1.1": kindPublic, "8.8.8.8": kindPublic, "172.32.0.1": kindPublic, "100.128.0.1": kindPublic, "223.255.255.255": kindPublic,
		"2606:4700::1111": kindPublic, "2a00:1450::1": kindPublic,

		"0.0.0.0": kindUnspecified, "0.1.2.3": kindReserved, "::": kindUnspecified,
		"10.0.0.1": kindPrivate, "172.16.0.1": kindPrivate, "172.31.255.255": kindPrivate, "192.168.1.1": kindPrivate, "100.64.0.1": kindPrivate, "fd12::1": kindPrivate,
		"127.0.0.1": kindLoopback, "127.255.255.254": kindLoopback, "::1": kindLoopback,
		"169.254.1.1": kindLinkLocal, "fe80::1": kindLinkLocal,
		"169.254.169.254": kindMetadata, "169.254.170.2": kindMetadata, "169.254.170.23": kindMetadata, "100.100.100.200": kindMetadata, "168.63.129.16": kindMetadata, "192.0.0.192": kindMetadata,
		"fd00:ec2::254": kindMetadata, "fd20:ce::254": kindMetadata, "fd00:42::42": kindMetadata,
		"224.0.0.1": kindMulticast, "239.255.255.255": kindMulticast, "ff02::1": kindMulticast,
		"192.0.2.1": kindReserved, "198.18.0.1": kindReserved, "198.51.100.1": kindReserved, "203.0.113.1": kindReserved, "192.88.99.1": kindReserved, "240.0.0.1": kindReserved, "255.255.255.255": kindReserved,
		"2001:db8::1": kindReserved, "3fff::1": kindReserved, "4000::1": kindReserved, "100::1": kindReserved, "fec0::1": kindReserved,

		// IPv4 in IPv6: mapped is the IPv4 address; NAT64 is what it leads to; the rest is refused.
		"::ffff:127.0.0.1": kindLoopback, "::ffff:10.0.0.1": kindPrivate, "::ffff:8.8.8.8": kindPublic, "::ffff:a9fe:a9fe": kindMetadata,
		"64:ff9b::8.8.8.8": kindPublic, "64:ff9b::127.0.0.1": kindReserved, "64:ff9b::a9fe:a9fe": kindReserved, "64:ff9b:1::8.8.8.8": kindReserved,
		"2002:7f00:1::": kindReserved, "2002:808:808::": kindReserved, // 6to4
		"2001:0:7f00:1::": kindReserved,                            // Teredo
		"::127.0.0.1":     kindReserved, "::8.8.8.8": kindReserved, // compatible
		"::ffff:0:127.0.0.1": kindReserved, // translated
	} {
		require.Equal(t, want, classify(netip.MustParseAddr(addr)), addr)
	}
}

func TestAdmitAddress(t *testing.T) {
	none := netip.Addr{}
	for _, c := range []struct {
		addr    string
		private bool
		named   string
		want    string
	}{
		{"8.8.8.8", false, "", ""},
		{"10.0.0.1", false, "", "10.0.0.1 is a private address: only a rule with private: true admits it"},
		{"10.0.0.1", true, "", ""},
		{"::ffff:10.0.0.1", false, "", "10.0.0.1 is a private address: only a rule with private: true admits it"},
		{"127.0.0.1", true, "", ""},
		{"169.254.169.254", true, "", "169.254.169.254 is a metadata address: only a rule for this address itself, with private: true, admits it"},
		{"169.254.169.254", true, "169.254.169.254", ""},
		{"169.254.169.254", false, "169.254.169.254", "169.254.169.254 is a metadata address: only a rule for this address itself, with private: true, admits it"},
		{"fd00:ec2::254", true, "", "fd00:ec2::254 is a metadata address: only a rule for this address itself, with private: true, admits it"},
		{"0.0.0.0", true, "0.0.0.0", "0.0.0.0 is an unspecified address: no rule admits it"},
		{"ff02::1", true, "ff02::1", "ff02::1 is a multicast address: no rule admits it"},
		{"fe80::1%eth0", true, "fe80::1", "fe80::1%eth0 is a link-local address: only a rule for this address itself, with private: true, admits it"},
	} {
		named := none
		if c.named != "" {
			named = netip.MustParseAddr(c.named)
		}
		err := admitAddress(netip.MustParseAddr(c.addr), c.private, named)
		if c.want == "" {
			require.NoError(t, err, c.addr)
		} else {
			require.EqualError(t, err, c.want)
		}
	}
}
