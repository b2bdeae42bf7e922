//! Links, networks and whole worlds in virtual time.
