r"""The papers' printed statements beside what is proved: one module a family, all answering with findings."""
