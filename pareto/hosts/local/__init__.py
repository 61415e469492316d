"""The local testbed's privileged half: namespaces, a link, an sshd in each, kept while the driver lives."""
