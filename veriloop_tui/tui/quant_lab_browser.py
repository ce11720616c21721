"""Opening a report beside the screen."""

from __future__ import annotations

import webbrowser


def browse_beside(address: str) -> bool:
    """Open an address in a browser that has a window; one in the terminal would draw over us."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    # The class of browsers in the terminal itself; its subclass starts others in the background.
    if type(browser) is webbrowser.GenericBrowser:
        return False
    return browser.open(address)
