r"""Where the files live that every process of a service needs: uploads, data sets, checkpoints and artifacts."""
