"""`python -m leadline_cli` is `leadline`."""

from leadline_cli.main import app

if __name__ == "__main__":
    app()
