// placeholder, replaced by the page
