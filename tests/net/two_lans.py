# SPDX-License-Identifier: Apache-2.0
"""Two bridges of hosts, joined by a slow trunk. For tests."""

from lab import TBF_LIMIT, bits, sh


def two_lans(lab, right, trunk):
    """Takes these hosts of a lab of mode veth to a second bridge; the trunk between the two has that rate, each way."""
    sh("ip", "-n", lab.centre, "-batch", "-", text="link add br1 type bridge\nlink set br1 up\n"
       "link add t0 type veth peer name t1\nlink set t0 master br0 up\nlink set t1 master br1 up\n"
       + "".join(f"link set p{i} master br1\n" for i in right))
    for end in ("t0", "t1"):
        sh("tc", "-n", lab.centre, "qdisc", "replace", "dev", end, "root", "tbf", "rate", f"{bits(trunk)}bit",
           "burst", 131072, "limit", TBF_LIMIT)
